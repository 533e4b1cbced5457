{% snapshot people %}
{{ config(target_schema='main', strategy='check', unique_key='id', check_cols=['amount', 'who'], invalidate_hard_deletes=true) }}
select id, who, amount from {{ ref('events') }}
{% endsnapshot %}
