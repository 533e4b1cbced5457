{{ config(post_hook="delete from {{ this }} where number_of_orders = 0 and last_name is null") }}
with orders as (
    select customer_id, min(order_date) as first_order, max(order_date) as most_recent_order, count(order_id) as number_of_orders
    from {{ ref('orders') }} group by customer_id
)
select c.customer_id, c.first_name, c.last_name, o.first_order, o.most_recent_order,
    coalesce(o.number_of_orders, 0) as number_of_orders,
    list(distinct p.payment_method order by p.payment_method) as methods,
    {'first': c.first_name, 'last': c.last_name} as full_name
from {{ ref('stg_customers') }} c
left join orders o using (customer_id)
left join {{ ref('stg_orders') }} so using (customer_id)
left join {{ ref('stg_payments') }} p using (order_id)
group by all
