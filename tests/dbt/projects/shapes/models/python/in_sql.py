def model(dbt, session):
    floor = dbt.config.get("floor")
    return dbt.ref("recent").filter(f"id > {floor}").query("rows", "select id, who from rows")
