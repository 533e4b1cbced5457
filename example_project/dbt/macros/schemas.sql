{# A model's schema is the one it names, without the target's in front: marts.fct_flights is in the folder marts/. #}
{% macro generate_schema_name(custom_schema_name, node) -%}
    {{ (custom_schema_name or target.schema) | trim }}
{%- endmacro %}
