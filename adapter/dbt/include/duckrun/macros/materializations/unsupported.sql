{#-
  dbt's own versions of these would build tables inside DuckDB's memory, which are gone when the process ends, and say
  that all went well.
-#}
{% materialization snapshot, adapter="duckrun" %}
  {{ duckrun_unsupported('snapshot') }}
{% endmaterialization %}

{% materialization external, adapter="duckrun", supported_languages=['sql', 'python'] %}
  {{ duckrun_unsupported('external') }}
{% endmaterialization %}

{% materialization materialized_view, adapter="duckrun" %}
  {{ duckrun_unsupported('materialized_view') }}
{% endmaterialization %}

{% materialization clone, adapter="duckrun" %}
  {{ duckrun_unsupported('clone') }}
{% endmaterialization %}

{% macro duckrun_unsupported(name) %}
  {% do exceptions.raise_compiler_error(
    "materialized: " ~ name ~ " is not supported by this version of the duckrun adapter; use table, incremental, view or seed."
  ) %}
{% endmacro %}
