! Writes (w) or reads (r) N unformatted records of M reals each, on units 10 and 11 without an open statement of their own.
program records
  implicit none
  integer :: n, m, i, k, ios, seen
  real, allocatable :: x(:)
  character(32) :: how, text
  logical :: there
  call get_command_argument(1, how)
  call get_command_argument(2, text)
  read (text, *) n
  call get_command_argument(3, text)
  read (text, *) m
  allocate (x(m))
  if (how == 'w') then
    inquire (file='fort.10', exist=there)
    if (there) stop 3
    do i = 1, n
      x = i
      write (10) i, x
    end do
  else if (how == 'replace') then
    open (10, file='fort.10', form='unformatted', status='replace')
    do i = 1, n
      x = i
      write (10) i, x
    end do
    close (10)
  else
    inquire (file='fort.11', exist=there)
    if (.not. there) stop 4
    open (11, file='fort.11', form='unformatted', status='old', position='rewind')
    do k = 1, n
      read (11, iostat=ios) i, x
      if (ios /= 0 .or. i /= k .or. any(x /= k)) stop 5
    end do
    read (11, iostat=ios) i
    if (ios /= -1) stop 6
    if (how == 'again') rewind (11)
    if (how == 'again') read (11) i
    if (how == 'back') backspace (11)
    close (11)
  end if
end program records
