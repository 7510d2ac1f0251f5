# The eighth part of otp_oracle.txt: pools, as Debian's erlang-poolboy has them. Run it with `elixir otp_oracle_pools.exs`.
# Every line it prints is `what was done: what poolboy did`.
:logger.set_primary_config(:level, :none)
say = fn what, x -> IO.puts("pool: #{what}: #{inspect(x)}") end
defmodule Worker do
  use GenServer
  def start_link(_), do: GenServer.start_link(__MODULE__, :counters.add(:persistent_term.get(:made), 1, 1))
  def init(_), do: {:ok, nil}
end
:persistent_term.put(:made, :counters.new(1, []))
pool = fn size -> {:ok, p} = :poolboy.start_link([worker_module: Worker, size: size, max_overflow: 0], []); p end
tr = fn f -> try do f.() catch :exit, {r, _} -> {:exit, r}; :exit, r -> {:exit, r} end end
counts = fn p -> {_, idle, _, lent} = :poolboy.status(p); {lent, idle} end
p = pool.(2)
[w, v] = for _ <- 1..2, do: :poolboy.checkout(p)
say.("two of two are two", w != v)
say.("lent and idle then", counts.(p))
say.("a third that does not wait", :poolboy.checkout(p, false))
say.("a third that waits for a moment", tr.(fn -> :poolboy.checkout(p, true, 30) end))
:poolboy.checkin(p, w)
say.("given back, lent and idle", counts.(p))
say.("the next has the one that was given back", :poolboy.checkout(p) == w)
:poolboy.checkin(p, w); :poolboy.checkin(p, v); Process.sleep(10)
say.("of several idle ones the next is the one that was used last", :poolboy.checkout(p) == v)
:poolboy.checkin(p, v)
p = pool.(1); w = :poolboy.checkout(p); me = self()
for n <- 1..3 do
  spawn(fn -> x = :poolboy.checkout(p, true, :infinity); send(me, {:served, n}); Process.sleep(10); :poolboy.checkin(p, x) end)
  Process.sleep(10)
end
:poolboy.checkin(p, w)
say.("who waits is served in order", for(_ <- 1..3, do: receive do {:served, n} -> n after 500 -> :none end))
Process.sleep(30)
w = :poolboy.checkout(p)
gone = spawn(fn -> :poolboy.checkout(p, true, :infinity) end); Process.sleep(10)
spawn(fn -> x = :poolboy.checkout(p, true, :infinity); send(me, {:served, 2}); Process.sleep(10); :poolboy.checkin(p, x) end); Process.sleep(10)
Process.exit(gone, :kill); Process.sleep(10); :poolboy.checkin(p, w)
say.("one that waits is killed: who is served", receive do {:served, n} -> n after 500 -> :none end)
Process.sleep(30)
say.("one that waits is killed: lent and idle in the end", counts.(p))
spawn(fn -> :poolboy.checkout(p); send(me, :has); exit(:boom) end)
receive do :has -> :ok end; Process.sleep(30)
say.("the one that has it crashes: lent and idle", counts.(p))
x = :poolboy.checkout(p)
say.("the one that has it crashes: the next has the same", x == w)
:poolboy.checkin(p, x)
say.("a transaction answers what its function does", :poolboy.transaction(p, fn _ -> 42 end))
say.("a transaction that raises: what its caller gets", (try do :poolboy.transaction(p, fn _ -> raise "boom" end) rescue e in RuntimeError -> e.message end))
say.("a transaction that raises: the next has the same", (y = :poolboy.checkout(p); :poolboy.checkin(p, y); y == w))
y = :poolboy.checkout(p); Process.exit(y, :kill); Process.sleep(30)
say.("a resource that ends is made anew", (z = :poolboy.checkout(p, true, 500); is_pid(z) and z != y))
say.("a pool that has ended", (Process.unlink(p); :poolboy.stop(p); tr.(fn -> :poolboy.checkout(p) end)))
made = :counters.get(:persistent_term.get(:made), 1)
_ = pool.(3)
say.("how many of three are made when it starts", :counters.get(:persistent_term.get(:made), 1) - made)
