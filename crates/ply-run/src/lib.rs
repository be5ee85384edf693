//! One app: plan, environment, instances, state, logs, the run parent
