def model(dbt, session):
    dbt.config(materialized="table")
    return dbt.ref("orders").filter("amount > 10").project("order_id, amount")
