//! One value as it was given, by a line of the file or by a variable, and the ways to read it.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use toml::de::DeValue;

use super::{ConfigError, Origin};
use crate::model::span::{self, Bounds};

/// A value with its full path and its place.
#[derive(Debug, Clone)]
pub(super) struct Given<'d> {
    pub key: String,
    pub origin: Origin,
    pub raw: Raw<'d>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Raw<'d> {
    Toml(&'d DeValue<'d>),
    /// A variable: everything is text there, and is read as what the key takes.
    Text(&'d str),
}

impl<'d> Given<'d> {
    /// The refusal of this value.
    pub fn refuse(&self, why: impl Display) -> ConfigError {
        ConfigError::Value { at: self.origin.clone(), key: self.key.clone(), why: why.to_string() }
    }

    fn mistyped(&self, wanted: &str) -> ConfigError {
        let found = match self.raw {
            Raw::Toml(value) => value.type_str(),
            Raw::Text(_) => "text",
        };
        self.refuse(format!("must be {wanted}, not {found}"))
    }

    /// A string.
    pub fn text(&self) -> Result<&'d str, ConfigError> {
        match self.raw {
            Raw::Text(text) => Ok(text),
            Raw::Toml(DeValue::String(text)) => Ok(text),
            Raw::Toml(_) => Err(self.mistyped("text in quotes")),
        }
    }

    /// A string that `T` accepts.
    pub fn parsed<T: FromStr<Err: Display>>(&self) -> Result<T, ConfigError> {
        self.text()?.parse().map_err(|error| self.refuse(error))
    }

    /// `true` or `false`.
    pub fn flag(&self) -> Result<bool, ConfigError> {
        match self.raw {
            Raw::Toml(DeValue::Boolean(flag)) => Ok(*flag),
            Raw::Text("true") => Ok(true),
            Raw::Text("false") => Ok(false),
            _ => Err(self.mistyped("true or false, without quotes")),
        }
    }

    /// A whole number within `bounds`.
    pub fn whole(&self, bounds: RangeInclusive<u32>) -> Result<u32, ConfigError> {
        let (digits, radix) = match self.raw {
            Raw::Toml(DeValue::Integer(number)) => (number.as_str(), number.radix()),
            Raw::Text(text) => (text, 10),
            Raw::Toml(_) => return Err(self.mistyped("a whole number, without quotes")),
        };
        let number = i128::from_str_radix(digits, radix).ok();
        number.and_then(|number| u32::try_from(number).ok()).filter(|number| bounds.contains(number)).ok_or_else(|| {
            let shown: String = digits.chars().take(40).collect();
            self.refuse(format!("must be a whole number from {} to {}, not {shown}", bounds.start(), bounds.end()))
        })
    }

    /// A duration within `bounds`.
    pub fn duration(&self, bounds: Bounds) -> Result<Duration, ConfigError> {
        match self.raw {
            Raw::Toml(DeValue::Integer(number)) => {
                let shown: String = number.as_str().chars().take(20).collect();
                Err(self.refuse(format!("must be a duration in quotes with its unit, such as \"{shown}s\" or \"15m\"")))
            }
            _ => span::parse(self.text()?, bounds).map_err(|why| self.refuse(why)),
        }
    }

    /// Whole seconds within `bounds`, without a unit, as a variable that has the unit in its name gives them.
    pub fn seconds(&self, bounds: Bounds) -> Result<Duration, ConfigError> {
        let text = self.text()?;
        let length = text.parse().ok().map(Duration::from_secs);
        length.filter(|it| (bounds.least..=bounds.most).contains(it)).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            let (least, most) = (bounds.least.as_secs(), bounds.most.as_secs());
            self.refuse(format!(
                "must be whole seconds from {least} to {most}, such as 300, without a unit, not {shown:?}"
            ))
        })
    }

    /// An address to listen on.
    pub fn socket(&self) -> Result<SocketAddr, ConfigError> {
        let text = self.text()?;
        text.parse().map_err(|_| {
            let shown: String = text.chars().take(80).collect();
            self.refuse(format!(
                "{shown:?} is no address to listen on; write an IP address and a port, such as \"127.0.0.1:4700\""
            ))
        })
    }
}
