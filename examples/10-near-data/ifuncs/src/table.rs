//! The groups of a query.

use alloc::vec::Vec;

use crate::Group;

/// Groups of rows, by the number of their sensor.
#[derive(Debug, Default)]
pub struct Table {
    groups: Vec<Group>,
}

/// Most sensors: a file with more of them is another one than the query is for.
const MAX_SENSORS: u64 = 1 << 16;

impl Table {
    /// Adds a row: `TIME,SENSOR,VALUE`, a value with two digits after the point.
    pub fn add(&mut self, line: &[u8]) {
        if let Some((sensor, value)) = parse(line).filter(|(sensor, _)| *sensor < MAX_SENSORS) {
            self.merge(&Group {
                sensor,
                rows: 1,
                sum: value,
                min: value,
                max: value,
            });
        }
    }

    /// Adds what another table found.
    pub fn merge(&mut self, other: &Group) {
        let at = other.sensor as usize;
        while self.groups.len() <= at {
            self.groups.push(Group {
                sensor: self.groups.len() as u64,
                rows: 0,
                sum: 0,
                min: i64::MAX,
                max: i64::MIN,
            });
        }
        let group = &mut self.groups[at];
        group.rows += other.rows;
        group.sum += other.sum;
        group.min = group.min.min(other.min);
        group.max = group.max.max(other.max);
    }

    /// The groups that have rows.
    #[must_use]
    pub fn into_groups(self) -> Vec<Group> {
        let mut groups = self.groups;
        groups.retain(|group| group.rows > 0);
        groups
    }
}

/// The sensor and the value of a line.
fn parse(line: &[u8]) -> Option<(u64, i64)> {
    let mut parts = line.split(|byte| *byte == b',');
    let (_time, sensor, value) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |digits: &[u8]| {
        let mut number = 0_u64;
        for byte in digits {
            let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
            number = number.checked_mul(10)?.checked_add(digit.into())?;
        }
        (!digits.is_empty()).then_some(number)
    };
    let (is_negative, value) = match value.strip_prefix(b"-") {
        Some(value) => (true, value),
        None => (false, value),
    };
    let point = value.iter().position(|byte| *byte == b'.')?;
    let (whole, parts) = (digits(&value[..point])?, digits(&value[point + 1..])?);
    if value.len() != point + 3 {
        return None;
    }
    let value = i64::try_from(whole.checked_mul(100)?.checked_add(parts)?).ok()?;
    Some((digits(sensor)?, if is_negative { -value } else { value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_parse_are_grouped() {
        let mut table = Table::default();
        for line in [
            "1,7,20.50",
            "2,7,-1.25",
            "3,2,0.00",
            "time,sensor,value",
            "4,7",
            "5,7,1.5",
            "6,x,1.00",
            "",
        ] {
            table.add(line.as_bytes());
        }
        let group = |sensor, rows, sum, min, max| Group {
            sensor,
            rows,
            sum,
            min,
            max,
        };
        assert_eq!(
            table.into_groups(),
            [group(2, 1, 0, 0, 0), group(7, 2, 1925, -125, 2050)]
        );
    }
}
