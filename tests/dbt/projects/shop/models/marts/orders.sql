select
    o.order_id, o.customer_id, o.order_date, o.status,
    {% for method in var('payment_methods') -%}
    coalesce(sum(case when p.payment_method = '{{ method }}' then p.amount end), 0) as {{ method }}_amount,
    {% endfor -%}
    coalesce(any_value(paid.total), 0) as amount
from {{ ref('stg_orders') }} o
left join {{ ref('stg_payments') }} p using (order_id)
left join {{ ref('paid') }} paid using (order_id)
group by all
