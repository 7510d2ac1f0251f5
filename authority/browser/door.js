// What there is for one door is in `client.js`, which needs nothing beside it. This file leads there until the next release.
export * from "./client.js";
