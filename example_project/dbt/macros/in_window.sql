{# True for rows of the partitions that Dagster's run asks for; for all rows when dbt runs by hand. #}
{% macro in_window(column) -%}
    {%- if var('window_start', none) -%}
        {{ column }} >= date '{{ var("window_start") }}' and {{ column }} < date '{{ var("window_end") }}'
    {%- else -%}
        true
    {%- endif -%}
{%- endmacro %}
