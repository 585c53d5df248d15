//! The OpenAPI document: the one in the repository is the one that the code gives, every field has a description, and every example
//! is valid.

use serde_json::{Map, Value};

#[cfg(feature = "openapi")]
#[test]
fn the_stored_description_is_current() {
    let current = limina_server::generated_openapi();
    assert!(limina_server::OPENAPI_JSON == current, "docs/openapi.json is old: run `cargo xtask openapi`");
}

/// The operations outside `/v1/ns/{namespace}`, below which the same ones are repeated, with their names.
fn operations(document: &Value) -> Vec<(&str, &Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let paths =
        paths.filter(|(path, _)| !path.starts_with("/v1/ns/{namespace}/") || path.ends_with("/audit"));
    let operations = paths.flat_map(|(_, item)| item.as_object().unwrap().values());
    operations.map(|operation| (operation["operationId"].as_str().unwrap(), operation)).collect()
}

fn document() -> Value {
    serde_json::from_str(limina_server::OPENAPI_JSON).unwrap()
}

#[test]
fn every_call_has_valid_examples() {
    let document = document();
    for (id, operation) in operations(&document) {
        let responses = operation["responses"].as_object().unwrap().iter();
        let (successes, problems): (Vec<_>, Vec<_>) =
            responses.partition(|(status, _)| status.starts_with(['1', '2']));
        let answers = examples(&document, id, successes.iter().map(|(_, response)| *response));
        let request = examples(&document, id, [&operation["requestBody"]].into_iter());
        examples(&document, id, problems.iter().map(|(_, response)| *response));
        // The document itself is too long for an example. Where no field can be given, the body is absent.
        let has_no_fields = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            == "#/components/schemas/NoFields";
        assert!(answers.is_none_or(|count| count > 0) || id == "openapi", "{id}: no example of an answer");
        assert!(request.is_none_or(|count| count > 0) || has_no_fields, "{id}: no example of a request");
    }
}

/// The number of examples of JSON bodies, all of which are valid. None if no body is JSON.
fn examples<'a>(document: &Value, id: &str, bodies: impl Iterator<Item = &'a Value>) -> Option<usize> {
    let mut count = None;
    for (media_type, content) in bodies.filter_map(|body| body["content"].as_object()).flatten() {
        if media_type == "application/json" {
            *count.get_or_insert(0) += usize::from(content.get("example").is_some());
        }
        if let Some(example) = content.get("example") {
            let faults = validate(document, &content["schema"], example);
            assert!(faults.is_empty(), "{id}: {example}: {faults:#?}");
        }
    }
    count
}

#[test]
fn an_example_can_be_invalid() {
    let document = document();
    let check = |schema: &str, example: &str, is_valid: bool| {
        let schema = serde_json::json!({"$ref": format!("#/components/schemas/{schema}")});
        let faults = validate(&document, &schema, &serde_json::from_str(example).unwrap());
        assert_eq!(faults.is_empty(), is_valid, "{example}: {faults:?}");
    };
    check("Check", r#"{"key_values": {"a": 1}}"#, true);
    check("Check", r#"{"key_values": {"a": []}}"#, false);
    check("Check", r#"{"key_values": {}, "hits": -1}"#, false);
    check("Check", r#"{"key_value": {}}"#, false);
    check("Check", "{}", false);
    check("NewLock", r#"{"key_values": {"a": 1}, "ttl": "1s"}"#, true);
    check("NewLock", r#"{"key_values": {"a": 1}, "ttl": "1s", "ttl_ms": 1000}"#, false);
    check("NewLock", r#"{"key_values": {}, "ttl": "1s"}"#, false);
    check("NewLock", r#"{"key_values": {"a": 1}, "mode": "other", "ttl": "1s"}"#, false);
}

#[test]
fn every_field_has_a_description() {
    let document = document();
    let mut missing = Vec::new();
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        find_bare(name, schema, &mut missing);
    }
    for (id, operation) in operations(&document) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            if parameter["description"].as_str().is_none_or(str::is_empty) {
                missing.push(format!("{id}: {}", parameter["name"]));
            }
        }
    }
    assert!(missing.is_empty(), "no description: {missing:#?}");
}

/// Finds the fields of a schema that say nothing about themselves.
fn find_bare(path: &str, schema: &Value, missing: &mut Vec<String>) {
    let is_described = |schema: &Value| schema["description"].as_str().is_some_and(|text| !text.is_empty());
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        // An optional field has its description inside its form. A field that must be `null` belongs to another form.
        let is_inside = field["oneOf"].as_array().into_iter().flatten().any(is_described);
        if !is_described(field) && !is_inside && field["type"] != "null" {
            missing.push(path.clone());
        }
        find_bare(&path, field, missing);
    }
    for word in ["oneOf", "anyOf", "allOf"] {
        schema[word].as_array().into_iter().flatten().for_each(|part| find_bare(path, part, missing));
    }
    for inner in ["items", "additionalProperties"].iter().filter_map(|word| schema.get(word)) {
        find_bare(&format!("{path}[]"), inner, missing);
    }
}

/// Keywords of schemas that demand nothing, or only what the server's own parser can judge.
const NOTES: [&str; 8] =
    ["description", "example", "examples", "format", "pattern", "propertyNames", "default", "deprecated"];

/// What of a value its schema does not allow. Only the keywords that the document has are known; another one is a fault, too.
fn validate(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    for (keyword, demand) in schema.as_object().into_iter().flatten() {
        let valid = |schema: &Value, value: &Value| validate(document, schema, value).is_empty();
        let count =
            |forms: &Value| forms.as_array().unwrap().iter().filter(|form| valid(form, value)).count();
        let size = value.as_object().map(Map::len);
        let length = value.as_array().map(Vec::len);
        let letters = value.as_str().map(|text| text.chars().count());
        let within = |size: Option<usize>| size.is_none_or(|size| size as u64 <= demand.as_u64().unwrap());
        let beyond = |size: Option<usize>| size.is_none_or(|size| size as u64 >= demand.as_u64().unwrap());
        let is_met = match keyword.as_str() {
            "$ref" => {
                let pointer = demand.as_str().unwrap().trim_start_matches('#');
                faults.extend(validate(document, document.pointer(pointer).unwrap(), value));
                true
            }
            "type" => match demand {
                Value::Array(types) => types.iter().any(|word| has_type(value, word)),
                word => has_type(value, word),
            },
            "enum" => demand.as_array().unwrap().contains(value),
            "oneOf" => count(demand) == 1,
            "anyOf" => count(demand) > 0,
            "allOf" => count(demand) == demand.as_array().unwrap().len(),
            "properties" => {
                for (name, schema) in demand.as_object().unwrap() {
                    for fault in value.get(name).iter().flat_map(|value| validate(document, schema, value)) {
                        faults.push(format!("{name}: {fault}"));
                    }
                }
                true
            }
            "required" => {
                demand.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some())
            }
            "additionalProperties" => value.as_object().into_iter().flatten().all(|(name, other)| {
                schema["properties"].get(name).is_some()
                    || (demand != false && (demand == true || valid(demand, other)))
            }),
            "items" => value.as_array().into_iter().flatten().all(|item| valid(demand, item)),
            "minimum" => value.as_f64().is_none_or(|number| number >= demand.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= demand.as_f64().unwrap()),
            "minItems" => beyond(length),
            "maxItems" => within(length),
            "minLength" => beyond(letters),
            "maxLength" => within(letters),
            "minProperties" => beyond(size),
            "maxProperties" => within(size),
            "uniqueItems" => true,
            note => NOTES.contains(&note) || note.starts_with("x-"),
        };
        if !is_met {
            faults.push(format!("{keyword} {demand} against {value}"));
        }
    }
    faults
}

fn has_type(value: &Value, word: &Value) -> bool {
    match word.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => false,
    }
}
