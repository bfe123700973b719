//! `[[worker]]` and `[[worker.resource]]`.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::given::{Given, Raw};
use super::reader::{Reader, api_address, inner_table};
use super::rules::LOCK_DELAY;
use super::section::{Section, join};
use super::{ConfigError, GatewayConfig, Origin, WorkerConfig};
use super::{calendar, driver};
use crate::limits;
use crate::model::span::written;
use crate::model::{
    AdbDevice, AdbWhich, BookingPolicy, Driver, DriverKind, LabelKey, LabelValue, Labels, NodeName, ResourceId,
    ResourceSpec,
};

const WORKER: &[&str] = &["name", "api", "resource"];
const RESOURCE: &[&str] = &["id", "count", "labels", "max_shared", "bookings", "driver", "lock_delay"];
const LABELS_MAX: usize = 64;
const PLACE: &str = "{n}";

/// What holds for a resource that says nothing else.
#[derive(Debug, Clone, Copy)]
pub(super) struct Common {
    pub bookings: BookingPolicy,
    pub lock_delay: Duration,
}

/// The workers of the file; none of them bears the gateway's name or another's.
pub(super) fn read<'d>(
    reader: &mut Reader<'d>,
    mut top: Section<'d>,
    gateway: Option<&GatewayConfig>,
    insecure: bool,
    common: Common,
) -> Result<Vec<WorkerConfig>, ConfigError> {
    let missing = "is missing; a lab has at least one worker: write [[worker]] with a name";
    let given = top.take("worker").ok_or_else(|| top.refuse("worker", missing.to_owned()))?;
    let tables = tables(&given, "[[worker]]")?;
    if tables.is_empty() {
        return Err(given.refuse(missing));
    }
    if tables.len() > limits::WORKERS_MAX {
        return Err(given.refuse(format!("{} workers; a lab has at most {}", tables.len(), limits::WORKERS_MAX)));
    }
    if gateway.is_none() && tables.len() > 1 {
        let why = format!("{} workers need a gateway; write [gateway], or leave one worker", tables.len());
        return Err(given.refuse(why));
    }
    let mut names: HashMap<NodeName, String> = HashMap::new();
    names.extend(gateway.map(|gateway| (gateway.name.clone(), "the gateway".to_owned())));
    let mut workers = Vec::with_capacity(tables.len());
    for (index, (at, table)) in tables.into_iter().enumerate() {
        let at = reader.document.at(at);
        let path = element(table, "name", "worker", index);
        let mut section = Section::open(reader.document, &path, at, Some(table), None, WORKER)?;
        let name = section.need("name", "write name = \"…\" under [[worker]]")?;
        let (parsed, origin) = (name.parsed::<NodeName>()?, name.origin.clone());
        if let Some(other) = names.insert(parsed.clone(), format!("the worker at {origin}")) {
            return Err(name.refuse(format!("{other} is called {parsed} too; every node needs a name of its own")));
        }
        reader.note(format!("worker.{parsed}.name"), format!("\"{parsed}\""), origin);
        let api = match section.take("api") {
            None => None,
            Some(given) => {
                let api = api_address(&given, insecure)?;
                reader.note(given.key, format!("\"{api}\""), given.origin);
                Some(api)
            }
        };
        let resources = match section.take("resource") {
            None => Vec::new(),
            Some(given) => resources(reader, &given, common)?,
        };
        workers.push(WorkerConfig { name: parsed, api, resources });
    }
    Ok(workers)
}

fn resources<'d>(reader: &mut Reader<'d>, given: &Given<'d>, common: Common) -> Result<Vec<ResourceSpec>, ConfigError> {
    let mut specs: Vec<ResourceSpec> = Vec::new();
    let mut seen: HashMap<ResourceId, Origin> = HashMap::new();
    let mut devices = Devices::default();
    for (index, (at, table)) in tables(given, "[[worker.resource]]")?.into_iter().enumerate() {
        let at = reader.document.at(at);
        let path = element(table, "id", &given.key, index);
        let mut section = Section::open(reader.document, &path, at, Some(table), None, RESOURCE)?;
        let id = section.need("id", "write id = \"…\" under [[worker.resource]]")?;
        let count = section.take("count");
        let counted = count.is_some();
        let ids = ids(reader, &id, count)?;
        if specs.len() + ids.len() > limits::RESOURCES_MAX {
            return Err(id.refuse(format!(
                "a worker has at most {} resources; give some to another worker",
                limits::RESOURCES_MAX
            )));
        }
        let labels = match section.take("labels") {
            None => Labels::new(),
            Some(given) => labels(reader, &given)?,
        };
        let max_shared = match section.take("max_shared") {
            None => NonZeroU32::MIN,
            Some(given) => {
                let most = given.whole(1..=limits::SHARED_MAX)?;
                reader.note(given.key, most.to_string(), given.origin);
                NonZeroU32::new(most).unwrap_or(NonZeroU32::MIN)
            }
        };
        let bookings = match section.take("bookings") {
            None => common.bookings,
            Some(given) => calendar::of_resource(reader, &given, common.bookings)?,
        };
        let driver = match section.take("driver") {
            None => Arc::default(),
            Some(given) => {
                let driver = driver::read(reader, &given, counted)?;
                devices.take(&driver, &given, &id)?;
                Arc::new(driver)
            }
        };
        let lock_delay = match section.take("lock_delay") {
            None => common.lock_delay,
            Some(given) => {
                let delay = given.duration(LOCK_DELAY)?;
                reader.note_text(&given.key, &written(delay), given.origin);
                delay
            }
        };
        for name in ids {
            if let Some(other) = seen.insert(name.clone(), id.origin.clone()) {
                return Err(id.refuse(format!("{name} is also a resource at {other}; give it another id")));
            }
            let (labels, driver) = (labels.clone(), Arc::clone(&driver));
            specs.push(ResourceSpec { id: name, labels, max_shared, bookings, driver, lock_delay });
        }
    }
    Ok(specs)
}

/// The devices of one worker that resources name by their serial, each with the id of its resource.
#[derive(Debug, Default)]
struct Devices(HashMap<(u16, String), String>);

impl Devices {
    /// Takes the device of `driver`, if it names one, for the resource `id`.
    fn take(&mut self, driver: &Driver, given: &Given<'_>, id: &Given<'_>) -> Result<(), ConfigError> {
        let DriverKind::Adb(AdbDevice { port, which: AdbWhich::Serial(serial) }) = &driver.kind else { return Ok(()) };
        let id = id.text()?;
        match self.0.insert((*port, serial.clone()), id.to_owned()) {
            None => Ok(()),
            Some(other) => Err(given.refuse(format!(
                "{id} and {other} both stand for the device {serial:?} of the adb server at port {port}; \
                 leave one of them out"
            ))),
        }
    }
}

/// The ids that one entry stands for: its own, or `count` of them.
fn ids<'d>(reader: &mut Reader<'d>, id: &Given<'d>, count: Option<Given<'d>>) -> Result<Vec<ResourceId>, ConfigError> {
    let text = id.text()?;
    let parse = |text: &str| text.parse::<ResourceId>().map_err(|error| id.refuse(error));
    let ids = match count {
        None if text.contains(PLACE) => {
            return Err(id.refuse(format!("has {PLACE} in it but no count; write count = … beside it")));
        }
        None => vec![parse(text)?],
        Some(count) if !text.contains(PLACE) => {
            return Err(count.refuse(format!("needs {PLACE} in the id, such as id = \"bench-{PLACE}\"")));
        }
        Some(count) => {
            let many = count.whole(1..=limits::RESOURCES_MAX as u32)?;
            reader.note(count.key, many.to_string(), count.origin);
            (1..=many).map(|n| parse(&text.replace(PLACE, &n.to_string()))).collect::<Result<_, _>>()?
        }
    };
    reader.note(&id.key, format!("{text:?}"), id.origin.clone());
    Ok(ids)
}

pub(super) fn labels<'d>(reader: &mut Reader<'d>, given: &Given<'d>) -> Result<Labels, ConfigError> {
    let table = inner_table(given).map_err(|_| {
        given.refuse("must be a table of keys and texts, such as { platform = \"android\", os = \"15\" }")
    })?;
    if table.len() > LABELS_MAX {
        return Err(given.refuse(format!("{} labels; a resource has at most {LABELS_MAX}", table.len())));
    }
    let mut entries: Vec<(&Spanned<_>, &Spanned<DeValue<'d>>)> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut labels = Labels::new();
    for (key, value) in entries {
        let (name, raw): (&str, _) = (key.get_ref(), value.get_ref());
        let at = reader.document.at(key.span().start);
        let label = Given { key: join(&given.key, name), origin: at, raw: Raw::Toml(raw) };
        let name: LabelKey = name.parse().map_err(|error| label.refuse(error))?;
        if let DeValue::Integer(_) | DeValue::Float(_) = raw {
            let shown = reader.document.text.get(value.span()).unwrap_or("…");
            return Err(label.refuse(format!("must be text in quotes; write {name} = \"{shown}\"")));
        }
        labels.insert(name, label.parsed::<LabelValue>()?);
    }
    let shown: Vec<String> = labels.iter().map(|(key, value)| format!("{key} = {:?}", value.as_str())).collect();
    reader.note(&given.key, format!("{{ {} }}", shown.join(", ")), given.origin.clone());
    Ok(labels)
}

/// The tables of an array of tables, each with the offset at which it begins.
fn tables<'d>(given: &Given<'d>, header: &str) -> Result<Vec<(usize, &'d DeTable<'d>)>, ConfigError> {
    let refused = || given.refuse(format!("must be a list of tables; write {header} with two brackets"));
    let Raw::Toml(DeValue::Array(array)) = given.raw else {
        return Err(refused());
    };
    (array.iter()).map(|it| Ok((it.span().start, it.get_ref().as_table().ok_or_else(refused)?))).collect()
}

/// The path of one table of a list: by its name where it has one, else by its number from 1.
fn element(table: &DeTable<'_>, key: &str, path: &str, index: usize) -> String {
    match table.get(key).and_then(|value| value.get_ref().as_str()) {
        Some(name) if !name.is_empty() && name.len() <= 140 && !name.contains(char::is_control) => {
            format!("{path}.{name}")
        }
        _ => format!("{path}[{}]", index + 1),
    }
}
