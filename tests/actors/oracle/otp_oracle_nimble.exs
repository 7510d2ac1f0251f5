# The ninth part of otp_oracle.txt: NimblePool. Neither Debian nor PyPI nor npm has it: get lib/nimble_pool.ex of
# https://github.com/dashbitco/nimble_pool and run this with `elixir -r nimble_pool.ex otp_oracle_nimble.exs`.
# Every line it prints is `what was done: what NimblePool did`.
:logger.set_primary_config(:level, :none)
say = fn what, x -> IO.puts("nimble: #{what}: #{inspect(x)}") end
defmodule Worker do
  def init_pool({test, fails}), do: {:ok, {test, :counters.new(1, []), fails}}
  def init_worker({_, made, fails} = pool) do
    :counters.add(made, 1, 1)
    if :counters.get(made, 1) <= fails, do: raise("no resource")
    {:ok, :counters.get(made, 1), pool}
  end
  def handle_checkout(:made, _, number, {_, made, _} = pool), do: {:ok, {number, :counters.get(made, 1)}, number, pool}
  def handle_checkout(_, _, number, pool), do: {:ok, number, number, pool}
  def terminate_worker(reason, number, {test, _, _} = pool), do: (send(test, {:closed, number, reason}); {:ok, pool})
end
me = self()
start = fn size, opts -> {:ok, p} = NimblePool.start_link([worker: {Worker, {me, opts[:fails] || 0}}, pool_size: size, lazy: opts[:lazy] || false]); p end
hold = fn p, n ->
  spawn(fn -> NimblePool.checkout!(p, :it, fn _, w -> send(me, {:has, n, w}); (receive do :done -> {:ok, w}; :boom -> raise "boom" end) end, :infinity); send(me, {:back, n}) end)
end
has = fn n -> receive do {:has, ^n, w} -> w after 500 -> :none end end
back = fn pid, n -> send(pid, :done); receive do {:back, ^n} -> :ok after 500 -> :none end; Process.sleep(5) end
once = fn p, ms -> NimblePool.checkout!(p, :it, fn _, w -> {w, w} end, ms) end
closed = fn -> receive do {:closed, w, why} -> {w, why} after 100 -> :none end end
tr = fn f -> try do f.() rescue e in RuntimeError -> e.message catch :exit, {r, _} -> {:exit, r}; kind, r -> {kind, r} end end

p = start.(2, [])
a = hold.(p, 1); b = hold.(p, 2)
{x, y} = {has.(1), has.(2)}
say.("two of two are two", x != y)
say.("a third that waits for a moment", tr.(fn -> once.(p, 30) end))
back.(a, 1)
say.("the next has the one that was given back", once.(p, 500) == x)
back.(b, 2)
say.("of several idle ones the next is the one that was used last", once.(p, 500) == y)
p = start.(1, [])
a = hold.(p, 0); has.(0)
others = for n <- 1..3, do: (q = hold.(p, n); Process.sleep(10); q)
back.(a, 0)
say.("who waits is served in order", Enum.map(Enum.with_index(others, 1), fn {q, n} -> has.(n); back.(q, n); n end))
a = hold.(p, 0); w = has.(0)
b = hold.(p, 1); Process.sleep(10); c = hold.(p, 2); Process.sleep(10)
Process.exit(b, :kill); Process.sleep(10); back.(a, 0)
say.("one that waits is killed: who is served", if(has.(2) == w, do: 2, else: :none))
back.(c, 2)
a = hold.(p, 0); has.(0)
tr.(fn -> once.(p, 10) end)
back.(a, 0)
say.("one that waits gives up: the next is served", once.(p, 500) == w)
say.("a block answers what its function does", NimblePool.checkout!(p, :it, fn _, w -> {42, w} end))
say.("a block that takes longer than its timeout is not cut", NimblePool.checkout!(p, :it, fn _, w -> Process.sleep(30); {true, w} end, 10))
say.("a block that raises: what its caller gets", tr.(fn -> NimblePool.checkout!(p, :it, fn _, _ -> raise "boom" end) end))
say.("a block that raises: the resource is closed", elem(closed.(), 0) == w)
v = once.(p, 500)
say.("a block that raises: the next has the same", v == w)
a = hold.(p, 0); has.(0); Process.exit(a, :kill)
say.("the one that has it is killed: the resource is closed", elem(closed.(), 0) == v)
say.("the one that has it is killed: the next has the same", once.(p, 500) == v)
a = hold.(p, 0); has.(0); b = hold.(p, 1); Process.sleep(10); send(a, :boom)
say.("the one that has it fails while another waits: that one is served", is_integer(has.(1)))
closed.(); back.(b, 1)
p = start.(2, [])
a = hold.(p, 0); w = has.(0)
other = once.(p, 500)
Process.unlink(p); NimblePool.stop(p)
say.("the pool ends while one of two is lent: only the other is closed by it", {elem(closed.(), 0) == other, closed.()})
send(a, :done)
say.("a pool that has ended", tr.(fn -> once.(p, 500) end))
p = start.(1, [])
a = hold.(p, 0); has.(0)
waits = spawn(fn -> send(me, {:waited, tr.(fn -> once.(p, :infinity) end)}) end); Process.sleep(10)
Process.unlink(p); NimblePool.stop(p, :shutdown)
say.("the pool ends while another waits: what that one gets", receive do {:waited, x} -> x after 500 -> :none end)
Process.exit(waits, :kill); Process.exit(a, :kill)
made = fn p -> NimblePool.checkout!(p, :made, fn _, w -> {elem(w, 1), w} end) end
say.("how many of three are made when it starts", made.(start.(3, [])))
p = start.(3, lazy: true)
say.("lazy: how many of three are made for the first", made.(p))
say.("lazy: how many of three are made for one after the other", (for _ <- 1..5, do: once.(p, 500); made.(p)))
say.("lazy: how many of three are made for two at once", (a = hold.(p, 0); has.(0); n = made.(p); back.(a, 0); n))
say.("lazy: a resource that cannot be made at first: what the caller gets", tr.(fn -> made.(start.(1, lazy: true, fails: 1)) end))
