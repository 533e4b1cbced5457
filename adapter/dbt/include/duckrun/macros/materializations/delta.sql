{#- A table whose folder is `location`. -#}
{% materialization delta, adapter="duckrun", supported_languages=['sql', 'python'] %}
  {{ return(materialization_table_duckrun()) }}
{% endmaterialization %}
