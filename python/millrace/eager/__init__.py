"""Operations that run at once: tensors with values, and the tape."""
