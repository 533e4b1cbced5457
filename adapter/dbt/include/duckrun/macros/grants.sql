{#- A lake is files: who may read them is said where they are stored. -#}
{% macro duckrun__apply_grants(relation, grant_config, should_revoke=True) %}
  {%- if grant_config -%}
    {% do log("Grants are ignored for " ~ relation ~ ": a lake has no users; who may read its files is set in their storage.") %}
  {%- endif -%}
{% endmacro %}
