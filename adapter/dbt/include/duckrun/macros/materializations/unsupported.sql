{#-
  dbt's own versions of these would build things inside DuckDB's memory, which are gone when the process ends, and say
  that all went well.
-#}
{% materialization materialized_view, adapter="duckrun" %}
  {{ duckrun_unsupported('materialized_view') }}
{% endmaterialization %}

{% materialization function, adapter="duckrun", supported_languages=['sql', 'python', 'javascript'] %}
  {{ duckrun_unsupported('function') }}
{% endmaterialization %}

{% macro duckrun_unsupported(name) %}
  {% do exceptions.raise_compiler_error(
    "materialized: " ~ name ~ " is not supported by the duckrun adapter: a lake holds tables and views. Use table, incremental or view."
  ) %}
{% endmacro %}
