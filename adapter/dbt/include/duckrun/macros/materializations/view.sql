{% materialization view, adapter="duckrun" %}
  {%- set target_relation = this.incorporate(type='view') -%}

  {% do duckrun_start() %}

  {%- set view_sql = duckrun_contract_sql(sql) -%}
  {{ write(view_sql) }}
  {%- set response = adapter.build_view(target_relation, adapter.model_config(model), view_sql) -%}
  {% do store_result('main', response=response) %}
  {% do duckrun_finish(target_relation) %}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
