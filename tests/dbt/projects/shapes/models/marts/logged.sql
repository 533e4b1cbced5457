{{ config(materialized='log_of_rows') }}
select id, who, {{ largest(ref('events'), 'id') }} as largest from {{ ref('recent') }}
{% if adapter.get_relation(this.database, this.schema, this.identifier) %} where id > (select max(id) from {{ this }}) {% endif %}
