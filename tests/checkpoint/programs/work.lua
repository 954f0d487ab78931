-- Traces that are compiled while strings and tables come and go, and a structure of the foreign function interface.
local ffi = require("ffi")
ffi.cdef [[ typedef struct { double x, y; } place; ]]
io.stdout:setvbuf("no")
local places = ffi.new("place[?]", 1000)
local seen, sum = {}, 0
for step = 1, 200 do
  for turn = 1, 1000 do
    for i = 0, 999 do
      places[i].x = places[i].x * 0.999 + i / (turn + 1)
      places[i].y = places[i].y + places[i].x % 7
    end
  end
  for i = 1, 3000 do
    local word = string.format("%d:%d", step, i % 500)
    seen[word] = (seen[word] or 0) + i
    sum = (sum * 31 + #word + seen[word]) % 1000003
  end
  if step % 20 == 0 then seen = {} end
  io.write(string.format("%d %d %.17g\n", step, sum, places[step].y))
end
