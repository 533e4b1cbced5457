{#- What table and incremental share: the rows of a model, by SQL or Python, as one commit. -#}
{% macro duckrun_build(target_relation, model_config, strategy, staging) %}
  {{ write(compiled_code) }}
  {%- if staging is not none -%}
    {%- set commit = adapter.store(target_relation, model_config, strategy, staging) -%}
  {%- else -%}
    {%- set commit = adapter.build_delta(target_relation, model_config, strategy, duckrun_contract_sql(compiled_code)) -%}
  {%- endif -%}
  {% do store_result('main', response=commit) %}
{% endmacro %}

{#- A contract's columns, in its order, checked before anything is written. -#}
{% macro duckrun_contract_sql(compiled_code) %}
  {%- set contract = config.get('contract') -%}
  {%- if contract and contract.enforced -%}
    {{ get_assert_columns_equivalent(compiled_code) }}
    {{ return(get_select_subquery(compiled_code)) }}
  {%- endif -%}
  {{ return(compiled_code) }}
{% endmacro %}

{% macro duckrun_start() %}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
{% endmacro %}

{% macro duckrun_finish(target_relation) %}
  {% do apply_grants(target_relation, config.get('grants'), should_revoke=False) %}
  {% do persist_docs(target_relation, model) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {% do adapter.commit() %}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
{% endmacro %}

{% macro duckrun__persist_docs(relation, model, for_relation, for_columns) %}
  {%- set columns = for_columns and config.persist_column_docs() and model.columns -%}
  {%- if columns -%}
    {%- set existing = adapter.get_columns_in_relation(relation) | map(attribute='name') | list -%}
    {% do validate_doc_columns(relation, model.columns, existing) %}
  {%- endif -%}
  {% do adapter.persist_delta_docs(relation, model, for_relation and config.persist_relation_docs(), columns) %}
{% endmacro %}

{#- store_failures: dbt would make a table in DuckDB's memory, where nobody could look at it afterwards. -#}
{% macro duckrun__get_create_sql(relation, sql) %}
  {%- if relation.is_view -%}
    {%- do adapter.build_view(relation, adapter.model_config(model), sql) -%}
  {%- else -%}
    {%- do adapter.build_delta(relation, adapter.model_config(model), 'overwrite', sql) -%}
  {%- endif -%}
  select 1 as stored
{% endmacro %}
