{#- dbt's own, without CASCADE: nothing in a lake hangs on a column. Each statement is a commit. -#}
{% macro duckrun__alter_column_type(relation, column_name, new_column_type) %}
  {%- set beside = adapter.quote(column_name ~ '__dbt_alter') -%}
  {% call statement('alter_column_type') %}
    alter table {{ relation.render() }} add column {{ beside }} {{ new_column_type }};
    update {{ relation.render() }} set {{ beside }} = {{ adapter.quote(column_name) }};
    alter table {{ relation.render() }} drop column {{ adapter.quote(column_name) }};
    alter table {{ relation.render() }} rename column {{ beside }} to {{ adapter.quote(column_name) }}
  {% endcall %}
{% endmacro %}
