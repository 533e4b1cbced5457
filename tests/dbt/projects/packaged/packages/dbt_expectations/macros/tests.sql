{% test expect_column_values_to_be_between(model, column_name, min_value, max_value, row_condition=none) %}
    with grouped as (select {{ column_name }} >= {{ min_value }} and {{ column_name }} <= {{ max_value }} as expression from {{ model }}
                     {{ 'where ' ~ row_condition if row_condition }})
    select * from grouped where not (expression)
{% endtest %}
{% test expect_table_row_count_to_be_between(model, min_value, max_value) %}
    select * from (select count(*) as n from {{ model }}) as c where not (n >= {{ min_value }} and n <= {{ max_value }})
{% endtest %}
{% test expect_column_values_to_match_regex(model, column_name, regex) %}
    select {{ column_name }} from {{ model }} where not regexp_matches({{ column_name }}, '{{ regex }}')
{% endtest %}
{% test expect_column_to_exist(model, column_name) %}
    {%- set names = adapter.get_columns_in_relation(model) | map(attribute='name') | map('lower') | list if execute else [] -%}
    select 1 as missing from (select 1 as one) as o where {{ 'false' if column_name | lower in names else 'true' }}
{% endtest %}
{% test expect_column_mean_to_be_between(model, column_name, min_value, max_value) %}
    select * from (select avg({{ column_name }}) as mean from {{ model }}) as m where not mean between {{ min_value }} and {{ max_value }}
{% endtest %}
{% test expect_column_quantile_values_to_be_between(model, column_name, quantile, min_value, max_value) %}
    select * from (select percentile_cont({{ quantile }}) within group (order by {{ column_name }}) as q from {{ model }}) as m
    where not q between {{ min_value }} and {{ max_value }}
{% endtest %}
{% test expect_column_values_to_be_of_type(model, column_name, column_type) %}
    {%- set types = {} -%}
    {%- for column in adapter.get_columns_in_relation(model) if execute %}{% do types.update({column.name | lower: column.dtype | lower}) %}{% endfor -%}
    select '{{ types.get(column_name | lower) }}' as found from (select 1 as one) as o
    where '{{ types.get(column_name | lower) }}' <> '{{ column_type | lower }}'
{% endtest %}
{% test expect_column_values_to_be_in_set(model, column_name, value_set) %}
    with allowed as ({% for value in value_set %}{{ 'union all' if not loop.first }} select cast('{{ value }}' as {{ dbt.type_string() }}) as v {% endfor %})
    select {{ column_name }} from {{ model }} where {{ column_name }} is not null and {{ column_name }} not in (select v from allowed)
{% endtest %}
{% test expect_column_pair_values_A_to_be_greater_than_B(model, column_A, column_B) %}
    select * from {{ model }} where not ({{ column_A }} > {{ column_B }})
{% endtest %}
{% test expect_row_values_to_have_data_for_every_n_datepart(model, date_col, date_part) %}
    with days as ({{ dbt_utils.date_spine(date_part, "cast('2026-02-03' as date)", "cast('2026-02-04' as date)") }}),
    counted as (select cast(days.date_{{ date_part }} as date) as d, count(m.{{ date_col }}) as n
                from days left join {{ model }} as m on cast(m.{{ date_col }} as date) = cast(days.date_{{ date_part }} as date) group by 1)
    select * from counted where n = 0
{% endtest %}
{% test expect_column_distinct_count_to_equal(model, column_name, value) %}
    select * from (select count(distinct {{ column_name }}) as n from {{ model }}) as c where not n = {{ value }}
{% endtest %}
{% test expect_column_values_to_be_within_n_moving_stdevs(model, column_name, date_column, sigma) %}
    with m as (select {{ date_column }}, sum({{ column_name }}) as v from {{ model }} group by 1),
    l as (select *, v - lag(v, 1) over (order by {{ date_column }}) as change from m),
    s as (select *, avg(change) over (order by {{ date_column }} rows between 3 preceding and 1 preceding) as mean,
                 stddev(change) over (order by {{ date_column }} rows between 3 preceding and 1 preceding) as deviation from l)
    select * from s where abs((change - mean) / nullif(deviation, 0)) > {{ sigma }}
{% endtest %}
