{% test expression_is_true(model, expression, column_name=none) %}
    select 1 as failing from {{ model }} where not ({{ column_name ~ ' ' if column_name }}{{ expression }})
{% endtest %}
{% test unique_combination_of_columns(model, combination_of_columns) %}
    select {{ combination_of_columns | join(', ') }} from {{ model }} group by {{ combination_of_columns | join(', ') }} having count(*) > 1
{% endtest %}
{% test accepted_range(model, column_name, min_value=none, max_value=none) %}
    with meet_condition as (select * from {{ model }}),
    validation_errors as (
        select * from meet_condition where 1 = 2
        {% if min_value is not none %} or not {{ column_name }} >= {{ min_value }}{% endif %}
        {% if max_value is not none %} or not {{ column_name }} <= {{ max_value }}{% endif %}
    )
    select * from validation_errors
{% endtest %}
{% test at_least_one(model, column_name) %}
    select * from (select count({{ column_name }}) as filled from {{ model }} having count({{ column_name }}) = 0) as nothing
{% endtest %}
{% test equal_rowcount(model, compare_model) %}
    with a as (select count(*) as n from {{ model }}), b as (select count(*) as n from {{ compare_model }})
    select a.n - b.n as difference from a cross join b where a.n <> b.n
{% endtest %}
{% test recency(model, field, datepart, interval) %}
    select most_recent from (select max({{ field }}) as most_recent from {{ model }}) as r
    where most_recent < {{ dbt.dateadd(datepart, interval * -1, "cast('2026-02-04' as date)") }}
{% endtest %}
{% test sequential_values(model, column_name, interval=1, datepart='day') %}
    with windowed as (select {{ column_name }}, lag({{ column_name }}) over (order by {{ column_name }}) as previous from {{ model }})
    select * from windowed where not (cast({{ column_name }} as timestamp) = cast({{ dbt.dateadd(datepart, interval, 'previous') }} as timestamp))
{% endtest %}
{% test not_empty_string(model, column_name) %}
    select * from (select * from {{ model }} where trim({{ column_name }}) = '') as e
{% endtest %}
