"""Image generations: jobs at providers, made, followed, charged once, and shown in the envelope of SPEC."""
