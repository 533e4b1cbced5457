{# A table in the way of dbt's own: made under another name, and renamed when it is whole. #}
{% materialization swapped, default %}
    {%- set target_relation = this.incorporate(type='table') -%}
    {%- set existing = load_cached_relation(this) -%}
    {%- set intermediate = make_intermediate_relation(target_relation) -%}
    {%- set backup = make_backup_relation(target_relation, 'table') -%}
    {{ drop_relation_if_exists(load_cached_relation(intermediate)) }}
    {{ drop_relation_if_exists(load_cached_relation(backup)) }}
    {{ run_hooks(pre_hooks, inside_transaction=False) }}
    {{ run_hooks(pre_hooks, inside_transaction=True) }}
    {% call statement('main') %}{{ get_create_table_as_sql(False, intermediate, sql) }}{% endcall %}
    {% if existing is not none %}{% do adapter.rename_relation(existing, backup) %}{% endif %}
    {% do adapter.rename_relation(intermediate, target_relation) %}
    {{ run_hooks(post_hooks, inside_transaction=True) }}
    {% do persist_docs(target_relation, model) %}
    {{ adapter.commit() }}
    {{ drop_relation_if_exists(backup) }}
    {{ run_hooks(post_hooks, inside_transaction=False) }}
    {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}

{# Rows are added in a statement of its own. #}
{% materialization log_of_rows, adapter='duckdb' %}
    {%- set target_relation = this.incorporate(type='table') -%}
    {%- set existing = adapter.get_relation(this.database, this.schema, this.identifier) -%}
    {{ run_hooks(pre_hooks) }}
    {% call statement('main') %}
        {% if existing is none %}create table {{ target_relation }} as ({{ sql }})
        {% else %}insert into {{ target_relation }} ({{ adapter.get_columns_in_relation(existing) | map(attribute='name') | join(', ') }}) ({{ sql }}){% endif %}
    {% endcall %}
    {{ run_hooks(post_hooks) }}
    {{ adapter.commit() }}
    {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}

{% macro note(what) %}
    insert into {{ target.schema }}.audit values ('{{ what }}', '{{ this.identifier if this else '' }}')
{% endmacro %}
{% macro largest(relation, column) %}
    {%- if not execute %}{{ return(0) }}{% endif -%}
    {{ return(run_query("select max(" ~ column ~ ") as m from " ~ relation).rows[0]['m']) }}
{% endmacro %}
