mod fake;
mod listening;
mod refusals;
mod shapes;
