/** A client of an instance for browsers (docs/reference/browser-client.md). */

import type { DoorMessage, PlayerKeys, TickClock, WatchedEntity } from "./door.js";

export { decode, Door, encode, loadKeys, makeKeys, Mirror, patched, Refused, sign, TickClock } from "./door.js";
export type { DoorMessage, PlayerKeys, Refusal, Watched, WatchedEntity } from "./door.js";

/** An instance refused, with a stable `code`; `unreachable`: it does not answer. */
export class HomeFailure extends Error {
  readonly code: string;
  /** For people, without the code. */
  readonly sentence: string;
}

/** What has become of an entity since it was looked at last. */
export interface EntityUpdate {
  readonly entity: WatchedEntity;
  /** Negative after a failover, if ticks were lost that nobody has. */
  readonly ticks: number;
  readonly isGone: boolean;
  readonly server: string;
}

/** Exactly one of entity, owner, pattern, and an area (centre or around, and radius). */
export interface Asked {
  entity?: string;
  owner?: string;
  pattern?: string;
  centre?: number[] | null;
  around?: string;
  radius?: number;
  /** How often at most; with every tick, if it is not said. */
  rateHz?: number;
}

/** Between which two states a moment is, and how much of the way is done, from 0 to 1. */
export interface Between {
  readonly before: WatchedEntity;
  readonly after: WatchedEntity;
  readonly share: number;
}

export interface Watch extends AsyncIterableIterator<EntityUpdate> {
  /** By name, what is known now. */
  readonly entities: ReadonlyMap<string, WatchedEntity>;
  /** Which server showed it last; empty if none did. */
  serverOf(name: string): string;
  /** Whether no door shows it at this moment: it is on its way, or its server has died. */
  isLost(name: string): boolean;
  /** What is to be drawn now, which was some ten milliseconds ago; null: nothing is known. */
  at(name: string, nowMs?: number): Between | null;
  close(): void;
}

export interface Steering {
  readonly entity: string;
  /** Who owns the entity instead of this player; empty while it does itself. */
  readonly owner: string;
  /** How many inputs were given and are not known to be applied. */
  readonly waiting: number;
  /** The entity's tick by which the last input known to be applied was applied. */
  readonly tick: number;
  /** Another page or program of this player steers it by now: everything throws `Refused`, `steered_elsewhere`. */
  readonly isTaken: boolean;
  /** Give an input of at most 4,096 bytes; its number. Waits while 512 are not acknowledged. */
  give(data: Uint8Array): Promise<number>;
  /** Wait until it is applied; throws `Refused` if the entity has another owner, or is deleted. */
  applied(number: number): Promise<number>;
  /** Wait until no failure of a server can take it back. */
  durable(number: number): Promise<void>;
}

/** What a request of REST answers; its members are those of docs/reference/rest.md. */
export type Answer = { readonly [member: string]: unknown };

export interface Client {
  /** Empty for an observer. */
  readonly player: string;
  /** How many connections to doors were lost while something was wanted of them. */
  readonly reconnections: number;
  readonly home: Home;
  /** Is called with what servers say besides states: `imminent_loss`, and `entity`, `transfer`, `question`, `gone`. */
  onevent: (message: DoorMessage) => void;
  watch(asked: Asked): Promise<Watch>;
  steer(entity: string): Promise<Steering>;
  spawn(id: string, how: { kind: string; server: string; params?: object; [member: string]: unknown }): Promise<Answer>;
  own(entity: string, how?: { transferId?: string; [member: string]: unknown }): Promise<Answer>;
  move(entity: string, to: string, how?: { transferId?: string; [member: string]: unknown }): Promise<Answer>;
  divest(entity: string, ownerRev: number, how?: { ifWanted?: boolean }): Promise<Answer>;
  handBack(entity: string, ownerRev: number): Promise<Answer>;
  leave(entity: string, ownerRev: number): Promise<Answer>;
  lock(entity: string, name: string, locksRev: number): Promise<Answer>;
  unlock(entity: string, name: string, locksRev: number): Promise<Answer>;
  delete(entity: string, masterRev: number): Promise<Answer>;
  release(entity: string, masterRev: number, releaseRev: number, how?: { discardInputs?: boolean }): Promise<Answer>;
  attach(entity: string, parent: string, parentRev: number): Promise<Answer>;
  changeRights(entity: string, seen: Answer, changes: { [member: string]: unknown }): Promise<Answer>;
  entity(entity: string): Promise<Answer>;
  why(entity: string): Promise<Answer>;
  transfer(transferId: string): Promise<Answer>;
  cancel(transferId: string): Promise<Answer>;
  servers(): Promise<Answer[]>;
  server(name: string): Promise<Answer>;
  loads(): Promise<Answer>;
  keysOf(player: string): Promise<Answer>;
  owned(): Promise<Answer[]>;
  questions(): Promise<Answer[]>;
  answer(question: { transfer_id: string; master_rev: number }, isYes: boolean): Promise<Answer>;
  transfers(entity: string, limit?: number): Promise<Answer[]>;
  follow(entities: string[]): void;
  /** The player has finished: an entity that is about to leave may go at once. Whether that was sent. */
  letGo(entity: string): boolean;
  close(): void;
}

/** The homeservers of an instance: one connection, to whichever of them answers. */
export class Home {
  constructor(url: string, who?: { player?: string; keys?: PlayerKeys | null; invitation?: string | null });
  /** What this player may do, as `welcome` says it; null before. */
  readonly welcome: DoorMessage | null;
  ready(): Promise<void>;
  /** A request of REST, of those that a player may make. Throws `HomeFailure`. */
  ask(method: string, target: string, body?: object | null): Promise<any>;
  simservers(): Promise<string[]>;
  close(): void;
}

/**
 * A client of the instance that has a homeserver at this address; an observer, if it is no player.
 *
 * With an `invitation` the player's keys are registered first; an empty one comes where an instance lets everybody in.
 */
export function connect(
  url: string,
  who?: { player?: string; keys?: PlayerKeys | null; invitation?: string | null },
): Promise<Client>;

/** The inputs for one entity, without network and time. */
export class InputStream {
  constructor(entity: string, target: string, nowMs: number, apart?: number);
}

/** The last states of entities, with the times at which they were. */
export class JitterBuffer {
  /** How long ago it was what is drawn now. */
  readonly delayMs: number;
  add(entity: WatchedEntity, atMs: number, periodMs: number, latenessMs: number): void;
  remove(name: string): void;
  at(name: string, nowMs: number): Between | null;
}
