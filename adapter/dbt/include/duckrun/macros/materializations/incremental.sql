{% materialization incremental, adapter="duckrun", supported_languages=['sql', 'python'] %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set model_config = adapter.model_config(model) -%}
  {%- set strategy = adapter.write_strategy(model_config, load_cached_relation(this), should_full_refresh()) -%}

  {% do duckrun_start() %}

  {%- set staging = none -%}
  {%- if model['language'] == 'python' -%}
    {#- dbt lets only a materialization itself submit Python -#}
    {%- set staging = adapter.staging_table(target_relation) -%}
    {% call statement('python_model', language='python') -%}
      {{- duckrun_python(staging, compiled_code) }}
    {%- endcall %}
  {%- endif -%}
  {% do duckrun_build(target_relation, model_config, strategy, staging) %}
  {% do duckrun_finish(target_relation) %}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
