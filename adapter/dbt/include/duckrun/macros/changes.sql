{#- What changed in a table since this model's own last commit: a name behind FROM. Kinds: append_only, upsert, min_delta, full_delta. -#}
{% macro changes(relation, kind=none, key=none, columns=none, predicate=none) -%}
  {{- adapter.changes(model, this, relation, kind, key, columns, predicate, should_full_refresh()) -}}
{%- endmacro %}
