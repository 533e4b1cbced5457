{# A few macros of a package, called and dispatched as people's projects do. #}
{% macro generate_surrogate_key(fields) %}{{ return(adapter.dispatch('generate_surrogate_key', 'dbt_utils')(fields)) }}{% endmacro %}
{% macro default__generate_surrogate_key(fields) %}
    {%- set parts = [] -%}
    {%- for field in fields -%}
        {%- do parts.append("coalesce(cast(" ~ field ~ " as " ~ dbt.type_string() ~ "), '_none_')") -%}
        {%- if not loop.last %}{% do parts.append("'-'") %}{% endif -%}
    {%- endfor -%}
    {{ dbt.hash(dbt.concat(parts)) }}
{% endmacro %}

{% macro get_column_values(table, column, order_by='count(*) desc, 1') %}
    {%- if not execute %}{{ return([]) }}{% endif -%}
    {%- set found = run_query("select " ~ column ~ " as value from " ~ table ~ " where " ~ column ~ " is not null group by " ~ column ~ " order by " ~ order_by) -%}
    {{ return(found.columns[0].values() | list) }}
{% endmacro %}

{% macro pivot(column, values, agg='sum', then_value=1, else_value=0, prefix='', quote_identifiers=true) %}
    {%- for value in values -%}
        {{ agg }}(case when {{ column }} = '{{ dbt.escape_single_quotes(value) }}' then {{ then_value }} else {{ else_value }} end) as
        {{ adapter.quote(prefix ~ value) if quote_identifiers else dbt_utils.slugify(prefix ~ value) }}{{ "," if not loop.last }}
    {% endfor -%}
{% endmacro %}

{% macro slugify(text) %}{{ return(modules.re.sub('[^a-z0-9_]', '_', text | lower)) }}{% endmacro %}

{% macro star(from, relation_alias=none, except=[], prefix='') %}
    {%- set hidden = except | map('lower') | list -%}
    {%- set columns = adapter.get_columns_in_relation(from) | rejectattr('name', 'in', except) | list if execute else [] -%}
    {%- for column in columns if column.name | lower not in hidden -%}
        {{ relation_alias ~ '.' if relation_alias }}{{ adapter.quote(column.name) }}{{ ' as ' ~ adapter.quote(prefix ~ column.name) if prefix }}{{ ", " if not loop.last }}
    {%- endfor -%}
{% endmacro %}

{% macro generate_series(upper_bound) %}
    with digit as (select 0 as one union all select 1)
    select p0.one + 2 * p1.one + 4 * p2.one + 8 * p3.one + 1 as generated_number
    from digit as p0 cross join digit as p1 cross join digit as p2 cross join digit as p3
    where p0.one + 2 * p1.one + 4 * p2.one + 8 * p3.one + 1 <= {{ upper_bound }}
{% endmacro %}

{% macro date_spine(datepart, start_date, end_date) %}
    with rawdata as ({{ dbt_utils.generate_series(dbt_utils.get_intervals_between(start_date, end_date, datepart)) }}),
    all_periods as (
        select ({{ dbt.dateadd(datepart, "row_number() over (order by generated_number) - 1", start_date) }}) as date_{{ datepart }} from rawdata
    )
    select * from all_periods where date_{{ datepart }} <= {{ end_date }}
{% endmacro %}

{% macro get_intervals_between(start_date, end_date, datepart) %}
    {%- if not execute %}{{ return(1) }}{% endif -%}
    {{ return(run_query("select " ~ dbt.datediff(start_date, end_date, datepart) ~ " + 1").columns[0].values()[0] | int) }}
{% endmacro %}

{% macro deduplicate(relation, partition_by, order_by) %}{{ return(adapter.dispatch('deduplicate', 'dbt_utils')(relation, partition_by, order_by)) }}{% endmacro %}
{% macro default__deduplicate(relation, partition_by, order_by) %}{{ exceptions.raise_compiler_error("the adapter has its own") }}{% endmacro %}
{% macro duckdb__deduplicate(relation, partition_by, order_by) %}
    select * from {{ relation }} as tt qualify row_number() over (partition by {{ partition_by }} order by {{ order_by }}) = 1
{% endmacro %}

{% macro unpivot(relation, cast_to, exclude, remove=[], field_name='field_name', value_name='value') %}
    {%- set columns = adapter.get_columns_in_relation(relation) if execute else [] -%}
    {%- for column in columns if column.name not in exclude + remove -%}
        {{ "union all" if not loop.first }}
        select {{ exclude | join(', ') }}, cast('{{ column.name }}' as {{ dbt.type_string() }}) as {{ field_name }},
            cast({{ adapter.quote(column.name) }} as {{ cast_to }}) as {{ value_name }}
        from {{ relation }}
    {% endfor -%}
{% endmacro %}

{% macro union_relations(relations, source_column_name='_source') %}
    {%- set types = {} -%}
    {%- for relation in relations if execute -%}
        {%- for column in adapter.get_columns_in_relation(relation) %}{% do types.update({column.name: column.data_type}) %}{% endfor -%}
    {%- endfor -%}
    {%- for relation in relations -%}
        {%- set own = adapter.get_columns_in_relation(relation) | map(attribute='name') | list if execute else [] -%}
        {{ "union all" if not loop.first }}
        select cast('{{ relation.identifier }}' as {{ dbt.type_string() }}) as {{ source_column_name }}
        {%- for name, type in types.items() %}, cast({{ adapter.quote(name) if name in own else 'null' }} as {{ type }}) as {{ adapter.quote(name) }}{% endfor %}
        from {{ relation }}
    {% endfor -%}
{% endmacro %}

{% macro safe_divide(numerator, denominator) %}({{ numerator }}) / nullif(({{ denominator }}), 0){% endmacro %}
