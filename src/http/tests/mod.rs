mod fake;
mod house;
mod listening;
mod refusals;
mod shapes;
mod streams;
