//! The rows of a list, as JSON and as CSV.

use serde::Serialize;
use tally_core::counter::Declarations;
use tally_core::values::ChangedKey;

use crate::counters::Reading;
use crate::frontend::http::words::envelope::rfc3339;
use crate::frontend::http::words::format::csv_field;
use crate::frontend::http::words::parameters::refused;
use crate::frontend::http::words::problem::Problem;

/// A counter in a list. What was not asked for is left out.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ListedCounter)]
pub struct ListedCounter {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "views:v42")]
    id: Option<String>,
    /// What a read shows.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<i64>,
    /// The last correction that touched it; 0 is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    /// The log time of the last change; `null` if it is not among those that are remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "2026-11-15T18:00:00.000Z")]
    changed_at: Option<Option<String>>,
}

/// What is known of a counter in a list.
pub struct ListedRow {
    pub id: Vec<u8>,
    /// As reads show it.
    pub value: i64,
    pub generation: u64,
    pub changed_at_ms: Option<u64>,
}

impl ListedRow {
    pub fn new(declarations: &Declarations, key: ChangedKey, reading: Reading) -> ListedRow {
        let value = declarations.shown(&key.id, reading.value);
        let (generation, changed_at_ms) = (reading.generation, Some(key.at_ms));
        ListedRow { id: key.id.into_vec(), value, generation, changed_at_ms }
    }

    fn shown_id(&self) -> String {
        String::from_utf8_lossy(&self.id).into_owned()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Id,
    Value,
    Generation,
    ChangedAt,
}

impl Field {
    const ALL: [Field; 4] = [Field::Id, Field::Value, Field::Generation, Field::ChangedAt];

    fn name(self) -> &'static str {
        match self {
            Field::Id => "id",
            Field::Value => "value",
            Field::Generation => "generation",
            Field::ChangedAt => "changedAt",
        }
    }

    fn csv(self, row: &ListedRow, out: &mut String) {
        match self {
            Field::Id => csv_field(&row.shown_id(), out),
            Field::Value => out.push_str(&row.value.to_string()),
            Field::Generation => out.push_str(&row.generation.to_string()),
            Field::ChangedAt => out.push_str(&row.changed_at_ms.map_or(String::new(), rfc3339)),
        }
    }
}

/// What is told of each counter, in this order.
pub struct Fields {
    told: Vec<Field>,
    pub changed_at: bool,
}

impl Fields {
    pub fn read(text: Option<&str>) -> Result<Fields, Problem> {
        let told = match text {
            None => Field::ALL.to_vec(),
            Some(text) => {
                let known = |name: &str| Field::ALL.into_iter().find(|field| field.name() == name);
                let names = Field::ALL.map(Field::name).join(", ");
                let refuse = || refused("fields", text, &format!("send some of {names}, with commas, each once"));
                let told: Option<Vec<Field>> = text.split(',').map(known).collect();
                let is_repeated = |told: &Vec<Field>| (1..told.len()).any(|at| told[..at].contains(&told[at]));
                told.filter(|told| !is_repeated(told)).ok_or_else(refuse)?
            }
        };
        Ok(Fields { changed_at: told.contains(&Field::ChangedAt), told })
    }

    pub fn view(&self, row: &ListedRow) -> ListedCounter {
        let mut view = ListedCounter::default();
        for field in &self.told {
            match field {
                Field::Id => view.id = Some(row.shown_id()),
                Field::Value => view.value = Some(row.value),
                Field::Generation => view.generation = Some(row.generation),
                Field::ChangedAt => view.changed_at = Some(row.changed_at_ms.map(rfc3339)),
            }
        }
        view
    }

    /// A line for each, behind one with the names.
    pub fn csv(&self, rows: &[ListedRow]) -> String {
        let mut text = self.told.iter().map(|field| field.name()).collect::<Vec<_>>().join(",");
        text.push('\n');
        for row in rows {
            for (n, field) in self.told.iter().enumerate() {
                if n > 0 {
                    text.push(',');
                }
                field.csv(row, &mut text);
            }
            text.push('\n');
        }
        text
    }
}
