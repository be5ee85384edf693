//! A TOML document as JSON, key for key: nothing derived, nothing filled in. This is the `manifest` of a
//! published record. Source: the registries reference, "Publishing to the official registry".

use crate::Diagnostics;
use crate::parse::MOST_BYTES;
use crate::walk::{Faults, parse_toml};
use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Renders TOML as JSON. Dates become strings as written, and so do the floats that JSON has no number for
/// (`nan`, `inf`). `file` is the name that errors show.
pub fn toml_to_json(text: &str, file: &str) -> Result<Value, Diagnostics> {
    let mut faults = Faults::new(text, file);
    let Some(root) = parse_toml(text, MOST_BYTES, &mut faults) else { return faults.finish(None) };
    let value = table(root.get_ref(), &mut faults);
    faults.finish(Some(value))
}

fn table(table: &DeTable<'_>, faults: &mut Faults<'_>) -> Value {
    let pairs = table.iter().map(|(k, v)| (k.get_ref().to_string(), render(v, faults)));
    Value::Object(pairs.collect::<Map<_, _>>())
}

fn render(value: &Spanned<DeValue<'_>>, faults: &mut Faults<'_>) -> Value {
    match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(values) => Value::Array(values.iter().map(|v| render(v, faults)).collect()),
        DeValue::Table(inner) => table(inner, faults),
        DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(n) => Value::Number(n.into()),
            Err(_) => {
                faults.at(&value.span(), format!("{number} is beyond 64 bits"));
                Value::Null
            }
        },
        DeValue::Float(number) => {
            let parsed = number.as_str().parse::<f64>().ok().and_then(Number::from_f64);
            parsed.map_or_else(|| Value::String(number.as_str().to_owned()), Value::Number)
        }
    }
}
