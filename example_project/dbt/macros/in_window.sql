{# True for rows of the partitions that Dagster's run asks for; for all rows when dbt runs by hand. #}
{% macro in_window(column) -%}
    {%- if var('partition_start', none) -%}
        {{ column }} >= date '{{ var("partition_start")[:10] }}' and {{ column }} < date '{{ var("partition_end")[:10] }}'
    {%- else -%}
        true
    {%- endif -%}
{%- endmacro %}
