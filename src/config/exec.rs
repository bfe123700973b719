//! `[exec]`: the tools that a holder may run on the machine that owns its device (SPEC §7).

use std::collections::BTreeMap;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::ConfigError;
use super::argv::{argv, program_under};
use super::given::{Given, Raw};
use super::reader::{Reader, inner_table};
use super::section::{Section, join};
use crate::model::span::Bounds;
use crate::model::{ExecRules, ToolName};

const TIMEOUT: Bounds = Bounds { least: Duration::from_secs(1), most: Duration::from_secs(24 * 3600) };
const TOOLS_MAX: usize = 256;
/// How a value of the lease's environment is named in an argument.
const PLACE: &str = "{env.";

/// `[exec]`. A tool that is named by a relative path counts from the directory of the lab file.
pub(super) fn exec<'d>(reader: &mut Reader<'d>, mut section: Section<'d>) -> Result<ExecRules, ConfigError> {
    let (timeout, _) = reader.duration(&mut section, "timeout", ExecRules::default().timeout, TIMEOUT)?;
    let allow = section.take("allow").map(|given| allow(reader, &given)).transpose()?.unwrap_or_default();
    Ok(ExecRules { timeout, allow })
}

fn allow<'d>(reader: &mut Reader<'d>, given: &Given<'d>) -> Result<BTreeMap<ToolName, Vec<String>>, ConfigError> {
    if let Raw::Text(_) = given.raw {
        return Err(given.refuse("is set in the lab file only, under [exec.allow]; unset the variable"));
    }
    let table = inner_table(given)?;
    if table.len() > TOOLS_MAX {
        return Err(given.refuse(format!("{} tools; a lab has at most {TOOLS_MAX}", table.len())));
    }
    let mut entries: Vec<(&Spanned<_>, &Spanned<DeValue<'d>>)> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let directory = reader.directory();
    let mut tools = BTreeMap::new();
    for (key, value) in entries {
        let name: &str = key.get_ref();
        let origin = reader.document.at(key.span().start);
        let tool = Given { key: join(&given.key, name), origin, raw: Raw::Toml(value.get_ref()) };
        let name: ToolName = name.parse().map_err(|error| tool.refuse(error))?;
        let mut prefix = argv(reader, &tool)?;
        if let Some(wrong) = prefix.iter().find(|text| !well_placed(text)) {
            let shown: String = wrong.chars().take(80).collect();
            return Err(tool.refuse(format!(
                "{shown:?} names no value of the lease's environment; write {{env.NAME}}, such as {{env.ANDROID_SERIAL}}"
            )));
        }
        program_under(directory.as_deref(), &mut prefix);
        tools.insert(name, prefix);
    }
    Ok(tools)
}

/// True when each place in `text` that looks as if it stood for a value does. Other braces mean themselves.
fn well_placed(text: &str) -> bool {
    let near = |place: &usize| text.get(*place..*place + 4).is_some_and(|word| word.eq_ignore_ascii_case("{env"));
    text.match_indices('{').map(|(place, _)| place).filter(near).all(|place| {
        let name = text[place..].strip_prefix(PLACE).and_then(|rest| rest.split_once('}')).map(|(name, _)| name);
        name.is_some_and(|name| {
            let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
            first && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        })
    })
}
