{% materialization seed, adapter="duckrun" %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set agate_table = load_agate_table() -%}
  {%- do store_result('agate_table', response='OK', agate_table=agate_table) -%}

  {% do duckrun_start() %}

  {%- set commit = adapter.load_seed(target_relation, model, agate_table, config) -%}
  {% do store_result('main', response=commit, agate_table=agate_table) %}
  {% do duckrun_finish(target_relation) %}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
