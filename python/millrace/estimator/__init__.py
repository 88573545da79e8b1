"""Estimators: models that train, evaluate, predict and export themselves."""
