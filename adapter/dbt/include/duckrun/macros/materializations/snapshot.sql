{#- dbt's own snapshot, up to its query; what that finds goes into the table as one merge. -#}
{% materialization snapshot, adapter="duckrun" %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set model_config = adapter.model_config(model) -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- if existing is not none and not existing.is_table -%}
    {% do exceptions.relation_wrong_type(existing, 'table') %}
  {%- endif -%}

  {% do duckrun_start() %}

  {%- set strategy_macro = strategy_dispatch(config.get('strategy')) -%}
  {%- set strategy = strategy_macro(model, "snapshotted_data", "source_data", model['config'], existing is not none) -%}
  {%- set columns = config.get("snapshot_table_column_names") or get_snapshot_table_column_names() -%}

  {%- if existing is none -%}
    {%- set select = build_snapshot_table(strategy, model['compiled_code']) -%}
  {%- else -%}
    {{ adapter.assert_valid_snapshot_target_given_strategy(target_relation, columns, strategy) }}
    {%- set select = snapshot_staging_table(strategy, sql, target_relation) -%}
  {%- endif -%}
  {{ check_time_data_types(select) }}
  {{ write(select) }}

  {%- if existing is none -%}
    {%- set commit = adapter.build_delta(target_relation, model_config, 'create', select) -%}
  {%- else -%}
    {%- set how = adapter.snapshot_strategy(columns, config.get('dbt_valid_to_current')) -%}
    {%- set commit = adapter.build_delta(target_relation, model_config, how, select) -%}
  {%- endif -%}
  {% do store_result('main', response=commit) %}
  {% do duckrun_finish(target_relation) %}

  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}
