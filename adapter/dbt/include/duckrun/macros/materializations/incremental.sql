{% materialization incremental, adapter="duckrun", supported_languages=['sql', 'python'] %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set strategy = adapter.write_strategy(load_cached_relation(this), should_full_refresh(), model) -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% do duckrun_build(target_relation, strategy) %}
  {% do duckrun_finish(target_relation) %}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
