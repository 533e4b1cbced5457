{% macro cents(column) %}({{ column }} / 100)::decimal(16, 2){% endmacro %}
