{#- dbt-duckdb's external: the rows go into a file, and a view over it is kept in the lake, where every process sees it. -#}
{% materialization external, adapter="duckrun", supported_languages=['sql', 'python'] %}
  {% do adapter.needs_duckdb("materialized: external") %}
  {%- set target_relation = this.incorporate(type='view') -%}
  {%- set location = render(config.get('location', default=external_location(this, config))) -%}
  {%- set options = render_write_options(config) -%}

  {% do duckrun_start() %}

  {%- set staging = adapter.staging_table(target_relation) -%}
  {% call statement('create_table', language=model['language']) -%}
    {{- create_table_as(False, staging, compiled_code, model['language']) }}
  {%- endcall %}
  {%- set commit = adapter.build_external(target_relation, model, staging, location, options) -%}
  {% do store_result('main', response=commit) %}
  {% do duckrun_finish(target_relation) %}

  {%- set plugin_name = 'glue|' ~ config.get('glue_database', 'default') if config.get('glue_register', default=false) else config.get('plugin') -%}
  {%- if plugin_name is not none -%}
    {% do store_relation(plugin_name, target_relation, location, options['format'], config) %}
  {%- endif -%}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}

{#- An on-run-start hook of dbt-duckdb's projects: here the views over external models are kept in the lake. -#}
{%- macro register_upstream_external_models() -%}{%- endmacro -%}
