//! Filling the holes of an app's environment: manifest env, params, facts, overrides and the caller's
//! variables in; each variable with its value and whether it holds a secret out.

/// Whether a value is sealed ciphertext (`enc:v1:…`): never cut, never filled, always masked.
pub fn is_sealed(value: &str) -> bool {
    value.starts_with("enc:v")
}
