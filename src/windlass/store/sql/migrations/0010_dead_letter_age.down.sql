drop index windlass.outcome_failed_age, windlass.outcome_kept_failed_age;
