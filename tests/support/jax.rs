//! A Python with jax, made by `scripts/jax-env`.

/// Its path, as RELIGHT_JAX_PYTHON says; without one the reason, said so that `scripts/test` counts the test as skipped.
pub fn python() -> Option<String> {
    let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let python = var("RELIGHT_JAX_PYTHON");
    if python.is_none() {
        let why = var("RELIGHT_JAX_MISSING");
        let why = why
            .as_deref()
            .unwrap_or("RELIGHT_JAX_PYTHON is not set (`scripts/jax-env DIR` makes such a Python)");
        eprintln!("skipped: {why}");
    }
    python
}
