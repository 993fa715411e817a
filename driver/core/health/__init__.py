"""Whether a device is fit for work: signals in, evidence kept, a judgement out. All of it pure."""
