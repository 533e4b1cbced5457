{#- What dbt-duckdb writes for DuckDB, and Spark does another way. -#}

{% macro duckrun__create_table_as(temporary, relation, compiled_code, language='sql', partitioned_by=none, sorted_by=none) -%}
  {%- if adapter.on_spark() and temporary -%}
    {#- Spark has no temporary tables: the name stands for the query -#}
    create or replace temporary view {{ relation.include(database=False, schema=False) }} as
    {{ compiled_code }}
  {%- else -%}
    {{ duckdb__create_table_as(temporary, relation, compiled_code, language, partitioned_by, sorted_by) }}
  {%- endif -%}
{%- endmacro %}

{#- A Python model, and where its rows go. -#}
{% macro duckrun_python(staging, compiled_code) %}
  {%- for read in model.refs -%}
    {%- do adapter.will_read(ref(*([read.package, read.name] if read.get('package') else [read.name]), v=read.get('version'))) -%}
  {%- endfor -%}
  {%- for read in model.sources -%}
    {%- do adapter.will_read(source(*read)) -%}
  {%- endfor -%}
  {%- if adapter.on_spark() -%}
{{ compiled_code }}

staging = {{ staging.identifier | tojson }}
  {%- else -%}
{{ py_write_table(temporary=False, relation=staging, compiled_code=compiled_code) }}

_materialize = materialize

def materialize(df, con):
    from dbt.adapters.duckrun.model.returned import dataframe

    _materialize(dataframe(df), con)
  {%- endif -%}
{% endmacro %}

{#- Called by dbt's snapshots as a macro: the adapter's own method asks DuckDB, for every node. -#}
{% macro duckrun__get_columns_in_relation(relation) -%}
  {%- if adapter.on_spark() -%}
    {{ return(adapter.get_columns_in_relation(relation)) }}
  {%- else -%}
    {{ return(duckdb__get_columns_in_relation(relation)) }}
  {%- endif -%}
{%- endmacro %}
