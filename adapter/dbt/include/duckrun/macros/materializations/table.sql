{% materialization table, adapter="duckrun", supported_languages=['sql', 'python'] %}
  {%- set target_relation = this.incorporate(type='table') -%}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% do duckrun_build(target_relation, 'overwrite') %}
  {% do duckrun_finish(target_relation) %}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
