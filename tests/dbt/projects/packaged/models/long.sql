{{ dbt_utils.unpivot(ref('prices'), cast_to='varchar', exclude=['id'], field_name='price', value_name='value') }}
