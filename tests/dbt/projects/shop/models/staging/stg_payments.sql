select id as payment_id, order_id, payment_method, {{ cents('amount') }} as amount from {{ ref('raw_payments') }}
