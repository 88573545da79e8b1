"""Layers: functions of tensors that keep their own variables."""
